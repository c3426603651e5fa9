"""The machine's cores, processor, memory and processor topology."""
