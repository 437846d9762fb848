// The results of a batch as they come: a file of lines that a killed process leaves whole but for its last line.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "server/batch/batch_line.h"

namespace quire {

class ResultFile {
 public:
  // Creates the file, or continues it: cuts off what is no whole result, and everything after it. Throws Error naming the
  // file: kInvalid if it cannot be opened, kResource if it cannot be read or cut.
  explicit ResultFile(std::filesystem::path path);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  // line: of result_line() or error_line(); the id is new. Throws Error (kResource), and the file has whole lines as before.
  void add(const ResultId& id, std::string_view line);
  void sync();  // to the disk. Throws Error (kResource).

  bool has(const ResultId& id) const { return offsets_.contains(id); }
  std::optional<uint64_t> offset(const ResultId& id) const;  // where its line begins
  size_t answered() const { return answered_; }              // lines by is_answered()
  size_t failed() const { return offsets_.size() - answered_; }
  uint64_t bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void read();
  void note(const ResultId& id, std::string_view line);

  const std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
  boost::unordered_flat_map<ResultId, uint64_t, std::hash<ResultId>> offsets_;
  size_t answered_ = 0;
};

}  // namespace quire
