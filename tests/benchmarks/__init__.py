import warnings

warnings.filterwarnings("ignore", "the solve ended at max_epochs")  # cases bound their epochs on purpose
