"""Kinds of faults. Which are drawn for a seed follows from their order in the catalog, so whoever imports one of these modules first gets all of
them in this order."""

from server.sim_faults import disks as disks
from server.sim_faults import handovers as handovers
from server.sim_faults import hostile as hostile
from server.sim_faults import moments as moments
from server.sim_faults import network as network
from server.sim_faults import processes as processes
from server.sim_faults import recovery_moments as recovery_moments
