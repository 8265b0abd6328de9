"""GovMem-Bench: write policies compared on made-up candidate memories of known kinds."""
