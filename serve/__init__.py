"""The trained router beside any agent: sessions over HTTP, and what keeps them safe."""
