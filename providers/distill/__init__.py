"""Trajectory -> artefact: by rules or by a chat model."""
