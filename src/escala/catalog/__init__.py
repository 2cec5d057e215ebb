"""Sourced numbers: accelerators, links, clusters, engines, places. Every value has source, date, condition.

Files are read when first asked for. A name that is not known is an InvalidInput that lists near names.
"""

from escala.catalog.accelerators import accelerator, accelerators, node_of
from escala.catalog.clusters import cluster, cluster_for, clusters
from escala.catalog.engines import assumptions, engine, engines
from escala.catalog.links import link, links
from escala.catalog.places import Price, countries, operators, site

__all__ = [
    "Price",
    "accelerator",
    "accelerators",
    "assumptions",
    "cluster",
    "cluster_for",
    "clusters",
    "countries",
    "engine",
    "engines",
    "link",
    "links",
    "node_of",
    "operators",
    "site",
]
