"""What every client is given: read by the drivers in their environments, and by the tests in ours."""

EMBEDDER = "all-MiniLM-L6-v2"
RERANKER = "tiny-reranker"
CLASSIFIER = "tiny-classifier"
UNKNOWN = "no-such-model"

TEXTS = [
    "A short text.",
    "",
    "Ein längerer Satz über das Wetter.",
    "水は百度で沸騰する",
    "🙂" * 40,
    "What the cat is and where it was.",
]
TOO_LONG = "the one " * 400
# With spaces of all kinds, signs that the vocabulary lacks, and characters of several tokens.
HARD_TEXT = "  Ein  längerer\tSatz,\n日本語 and 🙂 ①½ CAPITALS  "

QUERY = "Where do cats sleep?"
DOCUMENTS = ["Dogs bark.", "Cats sleep anywhere.", "Where it was, and what it is."]
