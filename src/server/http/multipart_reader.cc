#include "server/http/multipart_reader.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <cctype>
#include <optional>

#include "json/parse.h"

namespace quire {
namespace {

constexpr size_t kMaxPartHead = 8 << 10;
constexpr size_t kMaxBoundary = 70;  // RFC 2046
constexpr int kMostParts = 32;

ApiError no_form(std::string_view why) {
  return bad_request({}, "the body is no form with files (multipart/form-data): {}", why);
}

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The value of a parameter of a header: of  form-data; name="a;b"; filename=c  . nullopt: it has none of that name.
std::optional<std::string> header_parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at < header.size()) {
    ++at;
    const size_t equals = header.find_first_of("=;", at);
    if (equals == header.npos || header[equals] == ';') {
      at = equals;
      continue;
    }
    const bool wanted = boost::beast::iequals(without_blanks(header.substr(at, equals - at)), name);
    std::string value;
    at = header.find_first_not_of(" \t", equals + 1);
    if (at != header.npos && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size() && (header[at + 1] == '"' || header[at + 1] == '\\')) ++at;
        value += header[at];
      }
      if (at >= header.size()) return std::nullopt;  // without its closing quote
      at = header.find(';', at);
    } else {
      const size_t end = std::min(header.find(';', equals), header.size());
      value = without_blanks(header.substr(equals + 1, end - equals - 1));
      at = end;
    }
    if (wanted) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string form_boundary(std::string_view content_type) {
  const std::string_view type = without_blanks(content_type.substr(0, content_type.find(';')));
  if (!boost::beast::iequals(type, "multipart/form-data"))
    throw ApiError(415,
                   fmt::format("an upload is a form with a file: Content-Type must be multipart/form-data, not {}",
                               describe(Json(type))),
                   "invalid_request_error", {}, "unsupported_media_type");
  std::optional<std::string> boundary = header_parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary)
    throw no_form(fmt::format("Content-Type must name a boundary of 1 to {} characters", kMaxBoundary));
  return std::move(*boundary);
}

// The first boundary has no line before it that would end: pretend one.
MultipartReader::MultipartReader(std::string_view boundary, FormSink& sink)
    : delimiter_("\r\n--" + std::string(boundary)), sink_(sink), buffer_("\r\n") {}

void MultipartReader::read(std::string_view bytes) {
  if (state_ == State::kEnd) return;
  buffer_ += bytes;
  while (step()) {
  }
}

// Takes something off the buffer. false: it needs more bytes.
bool MultipartReader::step() {
  switch (state_) {
    case State::kPreamble:
    case State::kData: {
      const size_t end = buffer_.find(delimiter_);
      // Without a delimiter, all but what may be the beginning of one.
      const size_t size = end != buffer_.npos ? end : buffer_.size() - std::min(buffer_.size(), delimiter_.size() - 1);
      if (state_ == State::kData && size > 0) sink_.add(std::string_view(buffer_).substr(0, size));
      buffer_.erase(0, end != buffer_.npos ? end + delimiter_.size() : size);
      if (end == buffer_.npos) return false;
      state_ = State::kAfterBoundary;
      return true;
    }
    case State::kAfterBoundary: {
      if (buffer_.starts_with("--")) {
        state_ = State::kEnd;
        buffer_.clear();
        return false;
      }
      const size_t end = buffer_.find("\r\n");  // after blanks that transports may have added
      const std::string_view between = std::string_view(buffer_).substr(0, std::min(end, buffer_.size()));
      if (between.size() > kMaxPartHead) throw no_form("a boundary's line does not end");
      if (end == buffer_.npos) return false;
      if (!without_blanks(between).empty()) throw no_form("there is something on a boundary's line");
      buffer_.erase(0, end);
      state_ = State::kHead;
      return true;
    }
    case State::kHead: {
      const size_t end = buffer_.find("\r\n\r\n");
      if (std::min(end, buffer_.size()) > kMaxPartHead) throw no_form("the head of a part is too large");
      if (end == buffer_.npos) return false;
      const std::string head = buffer_.substr(0, end);
      buffer_.erase(0, end + 4);
      begin_part(head);
      state_ = State::kData;
      return true;
    }
    case State::kEnd:
      return false;
  }
  return false;
}

void MultipartReader::begin_part(std::string_view head) {
  if (++parts_ > kMostParts) throw no_form(fmt::format("it has more than {} parts", kMostParts));
  for (size_t at = 0; at < head.size();) {
    const size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string_view line = head.substr(at, end - at);
    at = end + 2;
    const size_t colon = line.find(':');
    if (colon == line.npos || !boost::beast::iequals(without_blanks(line.substr(0, colon)), "content-disposition"))
      continue;
    const std::string_view value = line.substr(colon + 1);
    const std::optional<std::string> name = header_parameter(value, "name");
    if (!name) throw no_form("a part has no name");
    return sink_.begin_part(*name, header_parameter(value, "filename"));
  }
  throw no_form("a part has no Content-Disposition");
}

}  // namespace quire
