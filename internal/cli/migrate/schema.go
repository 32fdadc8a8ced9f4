package migrate

import (
	"fmt"
	"strings"

	"brine/internal/cli/frame"
	"brine/internal/store/consoledb"
	"brine/internal/store/returner"
)

var schemaCommand = frame.Command{
	Name: "migrate schema", Usage: "RETURNER",
	Doc: "Prints the SQL statements that create the tables of a returner: " + strings.Join(returner.Schemas(), ", ") + "; or of the option " +
		consoledb.SchemaName + ", whose statements are for a new database and for one with tables of an older version" +
		". Pass them to the database's own client, for example: brine migrate schema pgjsonb | psql -h db.example.com -U salt salt",
}

func runSchema(env *frame.Env, args []string) int {
	inv, code, ok := schemaCommand.Parse(env, &struct{}{}, args)
	if !ok {
		return code
	}
	if len(inv.Args) != 1 {
		return schemaCommand.Fail(env, "name one returner: "+strings.Join(schemas(), ", "))
	}
	text, ok := returner.Schema(inv.Args[0])
	if inv.Args[0] == consoledb.SchemaName {
		text, ok = consoledb.Schema(), true
	}
	if !ok {
		return schemaCommand.Fail(env, "the returner "+inv.Args[0]+" has no tables; name one of "+strings.Join(schemas(), ", "))
	}
	fmt.Fprint(env.Stdout, text)
	return frame.ExitOK
}

// schemas returns what has tables.
func schemas() []string { return append(returner.Schemas(), consoledb.SchemaName) }
