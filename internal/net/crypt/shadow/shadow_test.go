package shadow

import (
	"strings"
	"testing"
)

// The hashes are those of the C library's crypt(3).
func TestLikeTheCLibrary(t *testing.T) {
	for _, c := range []struct{ password, salt, want string }{
		{"", "$6$My5alT", "$6$My5alT$ITVDt4nuCksZF7Bh9tlxup6q4gCA1tS0ELRV/gI3sTJnGuwfGlsofH6cWm4/VOXfkf22/y.RZ0yHsGtHLLvF9/"},
		{"", "$5$My5alT", "$5$My5alT$cRt8bMXscdRgAstby5lA19BuWW6ElZWow00bqVsEzH/"},
		{"", "$1$My5alT", "$1$My5alT$XFeiOT.fJ9LEJ50XyQKSJ/"},
		{"", "$6$rounds=1500$abcdefghijklmnopqrst",
			"$6$rounds=1500$abcdefghijklmnop$U6ULoFcvdCJafDGcuFIyrS11pzOz5bnbCI2tJ2qh8JwqJSK5vCITkJ3MJ2LJ9rn0JjMoFrJonqJGgTvbS2MXw1"},
		{"", "$1$abcdefghijkl", "$1$abcdefgh$M55TzYaaccxVGbptZWaxX/"},
		{"", "$6$", "$6$$/chiBau24cE26QQVW3IfIe68Xu5.JQ4E8Ie7lcRLwqxO5cxGuBhqF2HmTL.zWJ9zjChg3yJYFXeGBQ2y3Ba1d1"},
		{"a", "$6$My5alT", "$6$My5alT$0EYfZYF84HVlYn2BKte19N.T7syxRbhsr4WCvxJFLZCpRfCfJ.rp1mbQqYp5y0vGSFy3cMfPsN.8nqbfPdc9W1"},
		{"a", "$5$My5alT", "$5$My5alT$ozbbs4K9C4UqjEBsIYqYPnwHvWoIIK4ZHSkL3oC4IP2"},
		{"a", "$1$My5alT", "$1$My5alT$.Nj9wVjSZJ4T.KaXXl1Kn0"},
		{"a", "$6$rounds=1500$abcdefghijklmnopqrst",
			"$6$rounds=1500$abcdefghijklmnop$bzcyfEX0j6ThN7dIdYhfxXcu.DO7Rmcqc6we9WhkpB3CFtTaFmjZEV1bECwd3PwvftDfStLkOBBshQeW8LdT/."},
		{"a", "$1$abcdefghijkl", "$1$abcdefgh$jUYc1Xi7pkozuzWQ0Dft71"},
		{"a", "$6$", "$6$$ek/ucQg0IM8SQLyD2D66mpoW0vAF26eA0/pqoN95V.F0nZh1IFuENNo0OikacRkDBk5frNqziMYMdVVrQ0o.51"},
		{"MyP@asswd", "$6$My5alT", "$6$My5alT$dX70VD1wnFof0Pl8AkakL7hHca8J0fE4V8HSJHtuOPgUuwujI0hwNTlP4iAACE8wwTGiwt/ebo8g53mAAVb7L1"},
		{"MyP@asswd", "$5$My5alT", "$5$My5alT$I46A.Dcgl.Ra0RfBL627QTYSm79hNtpiH6Juo6eGdy."},
		{"MyP@asswd", "$1$My5alT", "$1$My5alT$M78H4MnI3FEp6gxUIuOHR."},
		{"MyP@asswd", "$6$rounds=1500$abcdefghijklmnopqrst",
			"$6$rounds=1500$abcdefghijklmnop$wCc6aUQog/wifwwg12kUraftcFSD3PRGt3WL7f3Hidm/kp6DMAhJ7rj8oL7mCnAiT/3WLjXhUdsBQ3Efh79Ze/"},
		{"MyP@asswd", "$1$abcdefghijkl", "$1$abcdefgh$XgjQT.g9A8J1CmHJ7T.2H1"},
		{"MyP@asswd", "$6$", "$6$$p9qQfdNCLS/.Iprs4AOA01ECzzZQosxFpwKLWqiZYRRE.f55mIiSc5u3IslqGL4xiL5QUwzZjsljn/A/giNVS/"},
		{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "$6$My5alT",
			"$6$My5alT$BNWRQTYxI.nSbcMjOq5q.WXj4Q2YfbXZHwgwzwtoKuu6fLqkcXFQZr102jHZd4xRu7lWyZEFSR9H81/CiQVip/"},
		{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "$5$My5alT", "$5$My5alT$gKRfYTqo5HaCGJNplX9zYrPirXbxdCjr1deDnoOHqk9"},
		{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "$1$My5alT", "$1$My5alT$SsW4VG8u.Kght1L/I3fFB0"},
		{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "$6$rounds=1500$abcdefghijklmnopqrst",
			"$6$rounds=1500$abcdefghijklmnop$6rIC02fq6DP8cXwBPuE6tzTUUPxEguXP/3VzmxuAjMaFSfFwqdDEZSsEceHaE0C..BOkj9sC00jOdKiPCevaz."},
		{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "$1$abcdefghijkl", "$1$abcdefgh$qZQJZIj/wBFysso0hpBg61"},
		{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "$6$",
			"$6$$SANkhIiQJCVsb8OMEb77/42sYO6q2lYLlfuO7WE1QR0TNf/NTCKv/P5eBmnAQmkSVFIPt1JhhltVPikZR/MaR0"},
		{"pässwörd", "$6$My5alT", "$6$My5alT$jtUXItDX98pqt8y/tyHa1MJCmcUoQIB23FFUP8V3UeUHGnDcRDGemVWsu2gL6in8DPmTKwtD8QwY2DBWgl/BV."},
		{"pässwörd", "$5$My5alT", "$5$My5alT$UHXXCe./7KXrIGCXZJcsoQtu2WoG3ve8Wz2nhzIkhc."},
		{"pässwörd", "$1$My5alT", "$1$My5alT$CHXwmqn8W7LiU2dwnuFje1"},
		{"pässwörd", "$6$rounds=1500$abcdefghijklmnopqrst",
			"$6$rounds=1500$abcdefghijklmnop$WiKjjwB2Ls2IstG1RfgJP/x2CMa5aUbdb5mm06ULg/noAXQWBYEb39FLrq2v2Ka.LgHrSYWDGcuvJKUmT3mDC/"},
		{"pässwörd", "$1$abcdefghijkl", "$1$abcdefgh$xYuxUFvxUOR4Pd6a7EeUS0"},
		{"pässwörd", "$6$", "$6$$yMPkfzGcFCffodHeXboZ4HGPGQiYmdKy1.x85l1lf44q/wjyBJ6/pGh7oocpx9.A0iIaD6/1nWIik8lDzE97s0"},
	} {
		method := map[byte]string{'6': "sha512", '5': "sha256", '1': "md5"}[c.salt[1]]
		got, err := Hash(method, c.password, c.salt[3:])
		if err != nil || got != c.want {
			t.Errorf("%q with %s: %s, %v, want %s", c.password, c.salt, got, err, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range [][3]string{
		{"des", "a", "ab"}, {"sha512", "a\x00", "ab"}, {"sha512", strings.Repeat("a", 513), "ab"}, {"md5", "a", "a:b"},
		{"sha256", "a", "rounds=10$ab"}, {"sha256", "a", "rounds=999999999$ab"}, {"sha256", "a", "rounds=x$ab"},
	} {
		if got, err := Hash(c[0], c[1], c[2]); err == nil {
			t.Errorf("%q: %s", c, got)
		}
	}
}
