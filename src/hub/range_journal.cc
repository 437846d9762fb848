#include "hub/range_journal.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/whole_file.h"
#include "json/field.h"

namespace quire {

RangeJournal::RangeJournal(std::string etag, uint64_t size, uint64_t piece)
    : etag_(std::move(etag)), size_(size), piece_(piece), done_(size / piece + (size % piece != 0 ? 1 : 0)) {
  assert(piece > 0);
}

RangeJournal RangeJournal::parse(std::string_view text, std::string etag, uint64_t size) {
  const JsonField file = JsonField::parse(text, "the journal of a download");
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  const auto piece = static_cast<uint64_t>(file.at("piece").integer(1 << 16, kMost));
  if (file.get<std::string>("etag") != etag || static_cast<uint64_t>(file.at("size").integer(0, kMost)) != size)
    throw file.error("describes another file");
  RangeJournal journal(std::move(etag), size, piece);
  const JsonField done = file.at("done");
  if (done.array().size() != journal.pieces()) throw done.error("has not one number for each piece");
  for (size_t i = 0; i < journal.pieces(); ++i)
    journal.done_[i] = static_cast<uint64_t>(done.at(i).integer(0, static_cast<int64_t>(journal.bytes(i))));
  return journal;
}

RangeJournal RangeJournal::load(const std::filesystem::path& journal, const std::filesystem::path& partial,
                                std::string etag, uint64_t size, uint64_t piece) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(journal, ignored) && std::filesystem::file_size(partial, ignored) == size &&
      !ignored) {
    try {
      return parse(read_text_file(journal, size_t{64} << 20), etag, size);
    } catch (const Error&) {
      // Damaged, or of an older version of the file: the download starts again.
    }
  }
  return {std::move(etag), size, piece};
}

void RangeJournal::save(const std::filesystem::path& journal) const {
  write_whole_file(journal, Json{{"etag", etag_}, {"size", size_}, {"piece", piece_}, {"done", done_}}.dump());
}

uint64_t RangeJournal::bytes(size_t piece) const { return std::min(piece_, size_ - begin(piece)); }

void RangeJournal::add(size_t piece, uint64_t bytes) {
  done_[piece] += bytes;
  assert(done_[piece] <= this->bytes(piece));
}

uint64_t RangeJournal::total() const { return std::accumulate(done_.begin(), done_.end(), uint64_t{0}); }

}  // namespace quire
