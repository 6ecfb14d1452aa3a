"""What everybody shares: types, protocols, the layout of blocks, configuration, events, stress, errors."""
