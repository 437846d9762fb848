// How much each input of a model's linears counts: sums of squared inputs over a calibration text, as llama.cpp's imatrix
// files hold them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace quire {

struct ImportanceMatrix {
  // Of the inputs of one tensor. A tensor of stacked experts has several matrices of `cols` inputs.
  struct Entry {
    std::vector<float> sums;    // [matrices, cols]: of the squares; finite, not negative
    std::vector<float> counts;  // [matrices]: of how many rows of inputs; whole numbers, 0: none came
  };
  std::map<std::string, Entry, std::less<>> entries;  // by the tensor's name in a GGUF file: "blk.0.ffn_down.weight"
  std::vector<std::string> datasets;                  // names of the texts
  int chunks = 0, chunk_size = 0;                     // of the texts, in tokens; 0: unknown

  // The mean square of each input, [matrices, cols]: what a weight's squared error counts. All ones for a matrix that no
  // row came to.
  static std::vector<float> mean_squares(const Entry& entry);
};

// Reads either form of llama.cpp's files: GGUF (general.type "imatrix") or the older imatrix.dat. Throws Error naming the
// file and the entry: not such a file, cut, sizes that do not fit, numbers that are not finite or negative.
ImportanceMatrix read_importance_matrix(const std::filesystem::path& path);
// The same of a file in memory. file: its name in messages.
ImportanceMatrix parse_importance_matrix(std::span<const std::byte> bytes, const std::string& file);

enum class ImportanceForm { kGguf, kLegacy };
// Writes `path` all at once. The older form has one count for all matrices of an entry, in chunks, so counts of experts are
// lost, and mean squares keep their values.
void write_importance_matrix(const ImportanceMatrix& matrix, const std::filesystem::path& path, ImportanceForm form);

}  // namespace quire
