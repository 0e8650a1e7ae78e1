"""Kinds of faults. Which are drawn for a seed follows from their order in the catalog, so whoever imports one of these modules first gets all of
them in this order."""

from server.simulation.faults import disks as disks
from server.simulation.faults import handovers as handovers
from server.simulation.faults import hostile as hostile
from server.simulation.faults import moments as moments
from server.simulation.faults import network as network
from server.simulation.faults import processes as processes
from server.simulation.faults import recovery_moments as recovery_moments
from server.simulation.faults import regions as regions
