package value

// Weight estimates the size of v on the wire in bytes. It stops counting above
// limit.
func Weight(v any, limit int) int {
	n := 1
	switch x := v.(type) {
	case string:
		n = 5 + len(x)
	case []byte:
		n = 5 + len(x)
	case int64, uint64, float64:
		n = 9
	case Ext:
		n = 6 + len(x.Data)
	case Tuple:
		return Weight(&List{Items: x}, limit)
	case *List:
		for _, it := range x.items() {
			if n > limit {
				break
			}
			n += Weight(it, limit-n)
		}
	case *Dict:
		for k, it := range x.All() {
			if n > limit {
				break
			}
			n += Weight(k, limit-n)
			n += Weight(it, limit-n)
		}
	}
	return n
}
