"""Sourced numbers: accelerators, links, clusters, engines, places. Every value has source, date, condition.

Files are read when first asked for; `names(kind)` lists what there is. A name that is not known is
an InvalidInput that lists near names.
"""

from escala.catalog.accelerators import accelerator, node_of
from escala.catalog.clusters import cluster, cluster_for
from escala.catalog.engines import assumptions, engine
from escala.catalog.facts import Fact, kinds, lookup, names
from escala.catalog.links import link
from escala.catalog.places import Price, site

__all__ = [
    "Fact",
    "Price",
    "accelerator",
    "assumptions",
    "cluster",
    "cluster_for",
    "engine",
    "kinds",
    "link",
    "lookup",
    "names",
    "node_of",
    "site",
]
