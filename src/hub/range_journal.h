// Which bytes of an unfinished download are there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A file as consecutive pieces, each downloaded from its beginning. Kept next to the unfinished file, as JSON:
//   {"etag": "...", "size": 1234, "piece": 16777216, "done": [16777216, 4096]}
class RangeJournal {
 public:
  // Nothing is there yet. etag: identifies the content. piece: bytes, at least 1.
  RangeJournal(std::string etag, uint64_t size, uint64_t piece);
  // What a file written by save() says. Starts from nothing if there is none, if it describes another content, or if
  // `partial` has not the size of the whole file.
  static RangeJournal load(const std::filesystem::path& journal, const std::filesystem::path& partial, std::string etag,
                           uint64_t size, uint64_t piece);
  // The same from the journal's text. Throws Error if it is not a journal of this content.
  static RangeJournal parse(std::string_view text, std::string etag, uint64_t size);

  void save(const std::filesystem::path& journal) const;  // throws Error (kResource)

  size_t pieces() const { return done_.size(); }
  uint64_t begin(size_t piece) const { return piece * piece_; }
  uint64_t bytes(size_t piece) const;                         // of the whole piece
  uint64_t done(size_t piece) const { return done_[piece]; }  // from its beginning
  bool is_complete(size_t piece) const { return done_[piece] == bytes(piece); }
  void add(size_t piece, uint64_t bytes);  // at most what the piece lacks
  void forget(size_t piece) { done_[piece] = 0; }
  uint64_t total() const;  // bytes done

 private:
  std::string etag_;
  uint64_t size_, piece_;
  std::vector<uint64_t> done_;
};

}  // namespace quire
