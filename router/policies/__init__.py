"""Everything that can decide, from "no memory" to the oracle, behind one interface."""
