package console

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// The size of a rough picture, and how much one may differ from the recorded one: the mean and the
// most of its points, of 255. Other fonts and times differ by less, a page without its styles or in
// the other theme by more.
const (
	roughWide, roughHigh = 48, 32
	roughMean, roughMost = 6, 90
)

// roughly is a picture that is averaged to few points of grey.
func roughly(t *testing.T, picture []byte) *image.Gray {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	b := full.Bounds()
	out := image.NewGray(image.Rect(0, 0, roughWide, roughHigh))
	for y := range roughHigh {
		for x := range roughWide {
			sum, n := 0, 0
			for py := b.Min.Y + y*b.Dy()/roughHigh; py < b.Min.Y+(y+1)*b.Dy()/roughHigh; py++ {
				for px := b.Min.X + x*b.Dx()/roughWide; px < b.Min.X+(x+1)*b.Dx()/roughWide; px++ {
					sum += int(color.GrayModel.Convert(full.At(px, py)).(color.Gray).Y)
					n++
				}
			}
			out.SetGray(x, y, color.Gray{uint8(sum / max(n, 1))})
		}
	}
	return out
}

// apart returns the mean and the most by which the points of two rough pictures differ.
func apart(a, b *image.Gray) (mean float64, most int) {
	sum := 0
	for i := range a.Pix {
		d := max(int(a.Pix[i])-int(b.Pix[i]), int(b.Pix[i])-int(a.Pix[i]))
		sum += d
		most = max(most, d)
	}
	return float64(sum) / float64(len(a.Pix)), most
}

// looksAs compares the page with testdata/looks/NAME.png, roughly. BRINE_RECORD=1 writes that file.
func (s *stage) looksAs(name string) {
	s.t.Helper()
	full, got := s.look()
	path := filepath.Join("testdata/looks", name+".png")
	if os.Getenv("BRINE_RECORD") != "" {
		var b bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, got); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	want := recordedLook(s.t, path)
	mean, most := apart(got, want)
	if mean > roughMean || most > roughMost {
		file := filepath.Join(s.t.ArtifactDir(), name+".png")
		if err := os.WriteFile(file, full, 0o644); err != nil {
			s.t.Error(err)
		}
		s.t.Errorf("%s differs from its recorded look by %.1f, at most %d, of 255 (%s; go test -artifacts keeps it). If that is meant: BRINE_RECORD=1",
			name, mean, most, file)
	}
	// The comparison can fail: without its styles the page looks otherwise.
	s.Run(nil, `for (const sheet of document.styleSheets) sheet.disabled = true;`)
	_, bare := s.look()
	s.Run(nil, `for (const sheet of document.styleSheets) sheet.disabled = false;`)
	if other, most := apart(bare, want); other <= roughMean && most <= roughMost {
		s.t.Errorf("%s without its styles differs by %.1f, at most %d, only", name, other, most)
	}
	s.t.Logf("%s: %.2f, at most %d", name, mean, most)
}

// look returns a picture of the page, whole and rough.
func (s *stage) look() ([]byte, *image.Gray) {
	s.t.Helper()
	s.Run(nil, `for (const a of document.getAnimations()) a.finish();`)
	full := s.Picture()
	return full, roughly(s.t, full)
}

func recordedLook(t *testing.T, path string) *image.Gray {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	grey, ok := img.(*image.Gray)
	if !ok || grey.Bounds().Dx() != roughWide || grey.Bounds().Dy() != roughHigh {
		t.Fatalf("%s is no rough picture", path)
	}
	return grey
}
