"""How the bundled models are made: photographs in, weights and figures out."""
