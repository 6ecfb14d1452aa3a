"""Panels: dissimilarities of all points to landmarks, from anywhere, checked."""
