// Package handshake is the sign-in of a minion at a master, as in Salt 3007: the
// request, the decision, the answer and its verification. It has no socket, no
// clock and no file; package channel sends its messages, package keystore stores
// the keys.
//
// The minion asks in clear:
//
//	{enc: clear, version: 3, load: {cmd: _auth, id, nonce, enc_algo, sig_algo,
//	 [autosign_grains], [token], pub}}
//
// The master answers {enc: clear, load: L, sig: S} with S its signature over
// the bytes L, and L a serialised map: {ret, nonce} with ret False (refused),
// True (wait for acceptance) or "full", or the acceptance
// {enc: pub, pub_key, publish_port, [pub_sig], [token], aes, session, sig, nonce}.
package handshake
