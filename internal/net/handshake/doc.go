// Package handshake is the sign-in between minion and master as Salt 3007
// does it: what is asked, what is decided, what is answered and what of the
// answer is believed. It has no socket, no clock and no file; the channel
// package moves its messages, the keystore package keeps the keys.
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
