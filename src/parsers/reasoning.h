// Splits off what stands between a family's marks of a thought; the rest goes to the next stage.
#pragma once

#include <memory>

#include "parsers/piece_writer.h"
#include "parsers/stage.h"

namespace quire {

// A thought begins at the answer's first mark, before any text, or at any mark that is a token of the vocabulary. Calls
// in a thought that is never closed are calls: models forget to close it. They are passed on when the answer ends, because
// the thought may go on.
std::unique_ptr<Stage> reasoning_stage(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer,
                                       Stage& next);

}  // namespace quire
