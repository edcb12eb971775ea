package catalog

import "rea/orchestrator/schema"

// Shape is how contracts describe values.
type Shape = schema.Shape

// Property is one member of an object.
type Property = schema.Property

// Constructors of shapes by short names, so that the entries of tools.go and results.go read like the contracts.
var (
	object     = schema.Object
	openObject = schema.OpenObject
	need       = schema.Need
	may        = schema.May
	list       = schema.List
	text       = schema.Text
	name       = schema.Name
	formatted  = schema.Formatted
	oneOf      = schema.OneOf
	constant   = schema.Constant
	flag       = schema.Flag
	count      = schema.Count
	anyValue   = schema.AnyValue
	nothing    = schema.Nothing
	either     = schema.Either
	tagged     = schema.Tagged
	orNull     = schema.OrNull
	shared     = schema.Shared
	described  = schema.Described
)
