package mersenne

import (
	"math/big"
	"slices"
	"testing"
)

// The numbers are those of Python 3.11's random.Random(seed): randrange of
// 10, 1000, 2**40 and 2**64-1, then samples of 10, 1000 and 30.
func TestLikePython(t *testing.T) {
	for _, c := range []struct {
		seed              any
		numbers           [4]uint64
		all, seven, three []int
	}{
		{"alpha", [4]uint64{0, 621, 441980044765, 8504634285659421950}, []int{4, 1, 3, 6, 7, 5, 2, 0, 8, 9}, []int{508, 405, 11, 110, 853, 276, 940},
			[]int{9, 24, 18, 23}},
		{[]byte{}, [4]uint64{7, 609, 851292096640, 13532181612435214026}, []int{3, 5, 0, 4, 8, 2, 6, 7, 1, 9}, []int{314, 197, 839, 172, 522, 272, 401},
			[]int{21, 0, 7, 20}},
		{int64(5), [4]uint64{9, 261, 789164966041, 12736496262939004471}, []int{8, 0, 7, 6, 1, 9, 5, 4, 3, 2}, []int{889, 252, 389, 556, 104, 587, 255},
			[]int{0, 23, 6, 13}},
		{int64(-7), [4]uint64{5, 970, 868231286071, 890727360438182992}, []int{1, 8, 9, 2, 4, 0, 7, 5, 6, 3}, []int{428, 71, 246, 92, 564, 434, 60},
			[]int{26, 18, 3, 7}},
		{new(big.Int).Lsh(big.NewInt(1), 70), [4]uint64{3, 972, 1075524520399, 14927063996242422567}, []int{0, 3, 4, 1, 9, 7, 6, 2, 8, 5},
			[]int{873, 32, 557, 423, 569, 179, 889}, []int{17, 5, 20, 6}},
		{false, [4]uint64{6, 776, 927241537154, 4776171008201404212}, []int{8, 7, 6, 9, 2, 3, 5, 4, 0, 1}, []int{288, 143, 773, 97, 633, 818, 256},
			[]int{29, 17, 22, 25}},
	} {
		s, err := New(c.seed)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range []uint64{10, 1000, 1 << 40, 1<<64 - 1} {
			if got := s.Below(n); got != c.numbers[i] {
				t.Errorf("%v: below %d is %d, want %d", c.seed, n, got, c.numbers[i])
			}
		}
		for _, sample := range []struct {
			n    int
			want []int
		}{{10, c.all}, {1000, c.seven}, {30, c.three}} {
			if got := s.Sample(sample.n, len(sample.want)); !slices.Equal(got, sample.want) {
				t.Errorf("%v: of %d: %v, want %v", c.seed, sample.n, got, sample.want)
			}
		}
	}
	if _, err := New(1.5); err == nil {
		t.Error("a fraction is a seed")
	}
}
