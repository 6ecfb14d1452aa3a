"""Pictures of maps, of how they were found, and of how well they fit."""

from psmds_dist.api.plot.pictures import KINDS as KINDS
from psmds_dist.api.plot.pictures import plot as plot
from psmds_dist.api.plot.pictures import save_curve as save_curve
from psmds_dist.api.plot.pictures import save_map as save_map
from psmds_dist.api.plot.style import require_picture_place as require_picture_place
