"""The layout of a batch whose texts share the tokens of a prefix."""

from vecmill.graphs.batch_layout import PLAIN, IndexedLayout, LayoutOptions, Neighbours
from vecmill.graphs.ops import Ops
from vecmill.models.description import LONG_TEXT_TOKENS


class SharedLayout(IndexedLayout):
    """An `IndexedLayout` in which texts share positions, for causal models.

    Further inputs, both int64: `token_of_query` (rows, width) and `token_of_key` (rows, longest).
    `slot_of_token` is the index of each token among the queries of all rows, so `merge_heads` takes results
    by row, not by text.
    """

    def __init__(self, op: Ops, options: LayoutOptions = PLAIN) -> None:
        assert options.patch_values is None  # pictures are no prefixes of each other
        super().__init__(op, options)
        queries = self.token_of_query = op.input("token_of_query", ["rows", "width"])
        self.token_of_key = op.input("token_of_key", ["rows", "longest"])
        if options.has_long:  # the mask of a long text is made block by block
            queries = op.slice(queries, 0, LONG_TEXT_TOKENS, axis=1)
        self.query_slots = op.Gather(self.token_positions, queries)

    def find_neighbours(self, distance: int) -> Neighbours:
        """Return the tokens before each token in its text; tokens after it depend on the text.

        A position belongs to one row of queries, whose keys begin with the tokens before it.
        """
        if distance > 0:
            raise ValueError("texts that share a token may go on differently after it")
        op = self._op
        every = op.Range(op.constant(0), op.Size(self.token_positions), op.constant(1))
        exists = op.GreaterOrEqual(self.token_positions, op.constant(-distance))
        slots = op.Gather(self.token_positions, self.token_of_query)
        slots = op.Max(op.Add(slots, op.constant(distance)), op.constant(0))
        others = op.GatherElements(self.token_of_key, slots, axis=1)
        others = op.Gather(op.Reshape(others, op.constant([-1])), self._slot_of_token)
        return self._at_distance(every, exists, others)
