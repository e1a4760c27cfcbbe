"""Models as functions, batched local training, and how to judge what was learned."""
