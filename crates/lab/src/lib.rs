//! Network namespaces, traffic and attacks for experiments on one machine.
