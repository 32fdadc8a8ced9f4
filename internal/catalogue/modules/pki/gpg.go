package pki

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/gpg"
	"brine/internal/host"
)

func init() { units.Register("gpg", gpgModule) }

func gpgModule(m *host.Machine) fn.Module {
	g := gpg.Keyrings{M: m}
	return fn.Module{Name: "gpg", Doc: `Keys of users in the keyrings of GnuPG, by the program gpg.`, Funcs: []fn.Func{
		fn.Of("create_key", g.CreateKey, `Create a key pair.`, fn.Example("salt '*' gpg.create_key key_length=3072 name_email=ann@example.org")),
		fn.Of("decrypt", g.DecryptMessage, `Decrypt a message.`, fn.Example("salt '*' gpg.decrypt filename=/root/message.asc")),
		fn.Of("delete_key", g.DeleteKey, `Remove a key from a keyring.`, fn.Example("salt '*' gpg.delete_key keyid=3FAD9F1E")),
		fn.Of("encrypt", g.EncryptMessage, `Encrypt a message for the owners of keys.`,
			fn.Example("salt '*' gpg.encrypt text=secret recipients=ann@example.org")),
		fn.Of("export_key", g.ExportKey, `Export keys as text.`, fn.Example("salt '*' gpg.export_key keyids=3FAD9F1E")),
		fn.Of("get_key", g.GetKey, `Return a public key, or false.`, fn.Example("salt '*' gpg.get_key keyid=3FAD9F1E")),
		fn.Of("get_secret_key", g.GetSecretKey, `Return a secret key, or false.`, fn.Example("salt '*' gpg.get_secret_key keyid=3FAD9F1E")),
		fn.Of("import_key", g.ImportKey, `Import keys from a text or a file.`, fn.Example("salt '*' gpg.import_key filename='/root/key.asc'")),
		fn.Of("list_keys", g.ListKeys, `Return the public keys.`, fn.Example("salt '*' gpg.list_keys user=root")),
		fn.Of("list_secret_keys", g.ListSecretKeys, `Return the secret keys.`, fn.Example("salt '*' gpg.list_secret_keys user=root")),
		fn.Of("receive_keys", g.ReceiveKeys, `Fetch keys from a key server.`, fn.Example("salt '*' gpg.receive_keys keys=3FAD9F1E")),
		fn.Of("search_keys", g.SearchKeys, `Search for keys on a key server.`, fn.Example("salt '*' gpg.search_keys ann@example.org")),
		fn.Of("sign", g.SignMessage, `Sign a message.`, fn.Example("salt '*' gpg.sign text='Hello.' keyid=3FAD9F1E")),
		fn.Of("trust_key", g.TrustKey, `Set how far the owner of a key is trusted.`,
			fn.Example("salt '*' gpg.trust_key keyid=3FAD9F1E trust_level=marginally")),
		fn.Of("verify", g.VerifyMessage, `Verify the signatures of a message.`, fn.Example("salt '*' gpg.verify filename=/root/message.asc")),
	}}
}
