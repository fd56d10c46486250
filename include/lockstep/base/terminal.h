// Text for people: as wide as their terminal, in colours where it has some, and never a reason for a run to
// end.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::terminal {

// Columns of the terminal behind a file, or what COLUMNS says; none where it is a file or a pipe.
std::optional<int> columns(std::FILE* file = stdout);
// Whether it is a terminal on which text may be overwritten (TERM is not "dumb"), and have colours (NO_COLOR
// is not set).
bool moves(std::FILE* file = stdout);
bool colours(std::FILE* file = stdout);

// Columns that a text takes: characters, not bytes; colours take none.
int width(std::string_view text);
// Lines broken at spaces so that none is wider, unless a single word is. What follows a broken line stands
// under the text behind the line's first gap of two spaces, as in a list with explanations, else two columns
// further in.
std::string wrapped(std::string_view text, int columns);

// Writes text, wrapped where the file is a terminal. False where that failed: the disk is full, or nobody
// reads the pipe any more, of which no signal is raised.
bool print(std::string_view text, std::FILE* file = stdout);
// The same, as it is.
bool write(std::string_view text, std::FILE* file = stdout);

// Who shows what write() is given for stdout, for programs whose standard output is somewhere else: a
// notebook, say. False: it did not, and the text goes to the file. Any thread may call it; null: nobody, as
// at the beginning.
using Shows = bool (*)(std::string_view text);
void set_output(Shows shows);

}  // namespace lockstep::terminal
