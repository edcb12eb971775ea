package artifact

// OpIdentify recognises and hashes a target without looking inside a file: its result is an inventory of the root
// alone. A directory is its content, so it is inventoried whole.
const OpIdentify = "identify_artifact"
