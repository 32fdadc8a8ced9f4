package migrate

import (
	"fmt"
	"strings"

	"brine/internal/cli/frame"
	"brine/internal/store/returner"
)

var schemaCommand = frame.Command{
	Name: "migrate schema", Usage: "RETURNER",
	Doc: "Prints the SQL statements that create the tables of a returner: " + strings.Join(returner.Schemas(), ", ") +
		". Pass them to the database's own client, for example: brine migrate schema pgjsonb | psql -h db.example.com -U salt salt",
}

func runSchema(env *frame.Env, args []string) int {
	inv, code, ok := schemaCommand.Parse(env, &struct{}{}, args)
	if !ok {
		return code
	}
	if len(inv.Args) != 1 {
		return schemaCommand.Fail(env, "name one returner: "+strings.Join(returner.Schemas(), ", "))
	}
	text, ok := returner.Schema(inv.Args[0])
	if !ok {
		return schemaCommand.Fail(env, "the returner "+inv.Args[0]+" has no tables; name one of "+strings.Join(returner.Schemas(), ", "))
	}
	fmt.Fprint(env.Stdout, text)
	return frame.ExitOK
}
