package jinja

// expr is an expression. The tree does not change after parsing, so any number
// of goroutines can evaluate it.
type expr interface {
	eval(f *frame) any
}

// stmt is a statement.
type stmt interface {
	exec(f *frame) flow
}

// flow says how execution continues after a statement.
type flow int

const (
	proceed flow = iota
	breakLoop
	continueLoop
)

type (
	constExpr struct{ v any }
	// nameExpr reads a variable, or is the target of an assignment.
	nameExpr struct {
		name string
		line int
		slot slotRef
		// store, param: the name is set, not read.
		store, param bool
	}
	nsrefExpr struct {
		name *nameExpr
		attr string
		line int
	}
	listExpr struct{ items []expr }
	// tupleExpr is also the target of an unpacking assignment.
	tupleExpr struct {
		items []expr
		line  int
	}
	dictExpr struct{ keys, vals []expr }
	condExpr struct {
		test, yes, no expr
		line          int
	}
	orExpr   struct{ a, b expr }
	andExpr  struct{ a, b expr }
	notExpr  struct{ a expr }
	compExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
	binExpr struct {
		op   byte // + - * / %, f for //, p for **
		a, b expr
	}
	negExpr struct {
		op byte
		a  expr
	}
	concatExpr  struct{ items []expr }
	getattrExpr struct {
		a    expr
		name string
	}
	getitemExpr struct{ a, key expr }
	sliceExpr   struct {
		a                 expr
		start, stop, step expr // nil if not given
	}
	// loneSlice is a slice that is one of several subscripts.
	loneSlice struct{ start, stop, step expr }
	callArgs  struct {
		args         []expr
		names        []string
		vals         []expr
		star, kwstar expr
	}
	callExpr struct {
		fn expr
		callArgs
		line int
	}
	filterExpr struct {
		in   expr // nil: the output of the filter block
		name string
		callArgs
		line int
		fn   *Func
	}
	testExpr struct {
		in   expr
		name string
		callArgs
		line int
		fn   *Func
	}
)

type (
	// outputStmt writes text and values alternately: texts[0], exprs[0],
	// texts[1] …
	outputStmt struct {
		texts []string
		exprs []expr
		lines []int
		line  int
		// guard: write nothing if the template extends another by now.
		guard bool
	}
	forStmt struct {
		target     expr
		iter, test expr
		body, els  []stmt
		recursive  bool
		line       int
		needLoop   bool
		loopSlot   int
		fn         *function // of a recursive loop
		bodyScope  entry
		elseScope  entry
		testScope  entry
		testTarget expr
	}
	ifStmt struct {
		tests  []expr
		bodies [][]stmt
		els    []stmt
		lines  []int
	}
	setStmt struct {
		target expr
		val    expr
		line   int
		// exported: the names to set in the context as well.
		exported []*nameExpr
	}
	setBlockStmt struct {
		target   expr
		filter   *filterExpr
		body     []stmt
		line     int
		scope    entry
		exported []*nameExpr
	}
	withStmt struct {
		targets []expr
		vals    []expr
		body    []stmt
		line    int
		scope   entry
	}
	autoescapeStmt struct {
		val   expr
		body  []stmt
		line  int
		scope entry
	}
	blockStmt struct {
		name             string
		scoped, required bool
		body             []stmt
		line             int
		fn               *function
		guard            bool
		top              bool
		locals           []local
		selfSlot         int
		superSlot        int
	}
	extendsStmt struct {
		name expr
		line int
	}
	includeStmt struct {
		name          expr
		ignoreMissing bool
		withContext   bool
		line          int
		locals        []local
	}
	importStmt struct {
		name        expr
		target      *nameExpr
		withContext bool
		line        int
		locals      []local
		top         bool
	}
	fromStmt struct {
		name        expr
		names       []string
		targets     []*nameExpr
		withContext bool
		line        int
		locals      []local
		top         bool
	}
	macroStmt struct {
		name     *nameExpr // nil for a call block
		args     []*nameExpr
		defaults []expr
		body     []stmt
		line     int
		fn       *function
		caller   bool
		varargs  bool
		kwargs   bool
		top      bool
		// slots of the parameters in order, then of caller, kwargs and varargs;
		// -1 if unused.
		slots                             []int
		callerSlot, kwargsSlot, argsSlot_ int
		explicitCaller                    bool
	}
	callStmt struct {
		macro *macroStmt
		call  *callExpr
		line  int
	}
	filterStmt struct {
		filter *filterExpr
		body   []stmt
		line   int
		scope  entry
	}
	doStmt struct {
		val  expr
		line int
	}
	loopStmt struct { // break or continue
		f    flow
		line int
	}
	timedStmt struct {
		label  expr
		source string
		body   []stmt
		line   int
	}
)
