package cluster

// Voter is the state of a voter, as seen by this master.
type Voter struct {
	ID string
	// Witness says that it is not a master of the cluster.
	Witness bool
	// Votes says that it answers and takes part; Why is the reason if not.
	Votes bool
	Why   string
	// Holder is the holder of the lease, "" for none, and Token the greatest granted one that it knows.
	Holder string
	Token  uint64
	// TLS says that it is connected by TLS, or is this master; Secret that a witness has the current secret of the cluster.
	TLS, Secret bool
}
