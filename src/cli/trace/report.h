// A summary of a trace, as text and as JSON.
#pragma once

#include <string>

#include "json/parse.h"
#include "trace/trace_summary.h"

namespace quire {

// Tables for a terminal, of printable ASCII.
std::string to_text(const TraceSummary& summary);

// The same numbers. Times are in milliseconds.
Json to_json(const TraceSummary& summary);

// What the trace lacks, a sentence each: it was cut off, reached its limit, or the writer fell behind.
std::vector<std::string> warnings_of(const TraceSummary& summary);

}  // namespace quire
