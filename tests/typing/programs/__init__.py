"""Programs as users write them; type-checked, never run."""
