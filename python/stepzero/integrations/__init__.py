"""Callbacks for trainers: transformers.py for Hugging Face's, lightning.py for Lightning's."""
