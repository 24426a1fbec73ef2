# The module file of etc/modulefiles/tasuki.in in Tcl or in Lua:
# awk -v form=tcl|lua -v version=... -v bindir=... -v mandir=... -v datadir=... -f THIS tasuki.in

function quoted(text) {
    if (form == "lua")
        gsub(/["\\]/, "\\\\&", text)
    else
        gsub(/["\\$\[\]]/, "\\\\&", text)
    return "\"" text "\""
}

function filled(line,    i, name, at) {
    for (i = 1; i in names; i++) {
        name = "@" names[i] "@"
        while (at = index(line, name))
            line = substr(line, 1, at - 1) values[i] substr(line, at + length(name))
    }
    return line
}

function statement(tcl, lua, value) {
    print form == "lua" ? lua "(" quoted(value) ")" : tcl " " quoted(value)
}

function path(how, variable, value) {
    if (form == "lua")
        print how "_path(" quoted(variable) ", " quoted(value) ")"
    else
        print how "-path " variable " " quoted(value)
}

function print_help(    i) {
    print form == "lua" ? "help([[" : "proc ModulesHelp { } {"
    for (i = 1; i <= lines; i++)
        print form == "lua" ? help[i] : "    puts stderr " quoted(help[i])
    print form == "lua" ? "]])" : "}"
}

BEGIN {
    split("version bindir mandir datadir", names, " ")
    values[1] = version; values[2] = bindir; values[3] = mandir; values[4] = datadir
    if (form != "lua")
        print "#%Module1.0"
}

/^#/ || NF == 0 { next }

{
    keyword = $1
    variable = $2
    line = filled($0)
    sub(/^[a-z]+ ?/, "", line)
    value = line
    sub(/^[A-Z_]+ ?/, "", value)
}

keyword == "help" { help[++lines] = line; next }

# Its last line is above the first of anything else.
lines && !helped { print_help(); helped = 1 }

keyword == "whatis" { statement("module-whatis", "whatis", line); next }
keyword == "conflict" { statement("conflict", "conflict", line); next }
keyword == "prepend" { path("prepend", variable, value); next }
keyword == "append" { path("append", variable, value); next }

{
    print "tasuki.in: " keyword " is no keyword" >"/dev/stderr"
    exit 1
}
