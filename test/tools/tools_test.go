package tools

import (
	"os"
	"strings"
	"testing"
)

func TestMakefileNamesStockTests(t *testing.T) {
	b, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "\nSTOCK_TESTS := "+StockTests+"\n") {
		t.Errorf("STOCK_TESTS of the Makefile is not %s", StockTests)
	}
}
