#include "model/loading/vector_list.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/error.h"
#include "quant/blocks.h"

namespace quire {
namespace {

void append_values(const std::string& file, const VectorJob& job, std::vector<float>& to) {
  std::vector<float> all(std::reduce(job.view->shape.begin(), job.view->shape.end(), size_t{1}, std::multiplies<>()));
  dequantize(job.view->type, job.view->bytes, all);
  const size_t before = to.size();
  to.resize(before + static_cast<size_t>(job.size));
  for (int i = 0; i < job.size; ++i) {
    const float value = changed(all[job.begin + static_cast<size_t>(job.source.row(i))], job.change);
    if (!std::isfinite(value))
      throw invalid("{}: tensor {} has the value {} at index {}; the file is damaged", file, job.view->name, value,
                    job.source.row(i));
    const int rows = job.size / std::max(1, job.cols),
              at = job.change == Change::kTranspose ? i % job.cols * rows + i / job.cols : i;
    to[before + static_cast<size_t>(at)] = value;
  }
}

}  // namespace

uint64_t VectorList::bytes() const {
  uint64_t floats = 0;
  for (const VectorJob& job : jobs_) floats += static_cast<uint64_t>(job.size);
  return floats * sizeof(float);
}

void VectorList::read(const std::string& file, Backend& backend, Backend* host) const {
  struct Read {
    std::vector<float> values;
    bool on_host = false;
  };
  std::map<Vector*, Read> read;
  for (const VectorJob& job : jobs_) {
    append_values(file, job, read[job.values].values);
    read[job.values].on_host = job.on_host;
  }
  for (const auto& [to, of] : read) *to = Vector(of.on_host ? *host : backend, of.values);
}

}  // namespace quire
