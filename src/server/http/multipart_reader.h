// Reads a form with files (multipart/form-data, RFC 7578) piece by piece, as it arrives.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/api/store_definition.h"

namespace quire {

// The boundary that a Content-Type names. Throws ApiError: it is another type (415), or names none (400).
std::string form_boundary(std::string_view content_type);

// Holds no more of the form than the head of a part, or a piece and a boundary.
class MultipartReader {
 public:
  // sink: is told the parts; must outlive it.
  MultipartReader(std::string_view boundary, FormSink& sink);

  // The next bytes. Throws ApiError (400) if this is no such form; and what the sink throws.
  void read(std::string_view bytes);
  // Whether the last boundary has come. What follows it does not count.
  bool complete() const { return state_ == State::kEnd; }

 private:
  enum class State : uint8_t { kPreamble, kAfterBoundary, kHead, kData, kEnd };

  bool step();
  void begin_part(std::string_view head);

  const std::string delimiter_;  // "\r\n--boundary"
  FormSink& sink_;
  State state_ = State::kPreamble;
  std::string buffer_;
  int parts_ = 0;
};

}  // namespace quire
