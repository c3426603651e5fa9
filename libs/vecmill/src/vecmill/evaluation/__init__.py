"""Retrieval quality: how well models find the right texts of labelled queries, and how two models differ.

    labelled_texts       queries, their right answers, and the corpus that is searched
    labelled_files       the same from files, in the forms of BEIR, MTEB and TREC
    exact_search         the best documents of each query, with trec_eval's rule for ties
    document_scores      scores of dense, sparse and multi-vector embeddings, by blocks of documents
    vector_forms         dense vectors in fewer dimensions and smaller types, as vector stores score them
    retrieval_measures   nDCG, recall and reciprocal rank, by ir_measures
    significance         bootstrap intervals, and paired tests by randomisation
    text_encoders        what embeds: a mill, a server, a function, stored vectors
    quality              the evaluation, a row for each model, plan, prompt and form
    quality_page, quality_plots, quality_tables     its report
    model_change         the comparison of two models over unlabelled texts

All but the last four take functions and arrays, and know no model.
"""
