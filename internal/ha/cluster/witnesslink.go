package cluster

// Voter is the state of a voter, as seen by this master.
type Voter struct {
	ID string
	// Witness means that it is not a master of the cluster.
	Witness bool
	// Votes means that it answers and takes part; Why is the reason if it does not.
	Votes bool
	Why   string
	// Holder is the holder of the lease, "" for none. Token is the greatest granted token that the voter knows.
	Holder string
	Token  uint64
	// TLS means that it is connected by TLS, or is this master. Secret means that the witness has the current secret of the
	// cluster.
	TLS, Secret bool
}
