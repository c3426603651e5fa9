"""Retrieval quality: how well models find the right texts of labelled queries, and how two models differ.

    labelled_texts       queries, their right answers, and the corpus that is searched
    labelled_files       the same from files, in the forms of BEIR, MTEB and TREC
    exact_search         the best documents of each query, with trec_eval's rule for ties
    document_scores      scores of dense, sparse and multi-vector embeddings, by blocks of documents
    vector_forms         dense vectors in fewer dimensions and smaller types, as vector stores score them
    retrieval_measures   nDCG, recall and reciprocal rank, by ir_measures
    significance         bootstrap intervals, and paired tests by randomisation
    neighbour_agreement  nearest neighbours and order of texts in two spaces
    text_encoders        what embeds: a mill, a server, a function
    stored_documents     vectors of a corpus that were embedded before
    corpus_search        one pass over a corpus with one of these
    quality              the evaluation: a row for each model, plan, prompt and form
    quality_rows, quality_report, quality_tables, quality_plots, quality_page     its figures
    model_change         the comparison of two models

Modules before `text_encoders` take arrays and know no model.
"""
