#include "cuda/route.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "cuda/kernels/route.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

constexpr int kMostLaneExperts = 32;
constexpr int kMostExperts = ChooseExperts<kMostLaneExperts>::kMostExperts;
constexpr int kMostUsed = 32;

// Hands out parts of memory, each at a multiple of 16 bytes. With no memory, only counts.
struct RouteCarver {
  std::byte* memory;
  size_t used = 0;

  template <class T>
  T* part(size_t count) {
    std::byte* begin = memory ? memory + used : nullptr;
    used += (count * sizeof(T) + 15) / 16 * 16;
    return reinterpret_cast<T*>(begin);
  }
};

struct CarvedRoutes {
  RoutesAt routes{};
  uint64_t* total = nullptr;
  size_t bytes = 0;
};

CarvedRoutes carve_routes(std::byte* memory, const OperationLimits& limits) {
  const auto experts = static_cast<size_t>(limits.experts.experts),
             routes = static_cast<size_t>(limits.max_rows) * static_cast<size_t>(limits.experts.used),
             tiles = (routes + RoutesAt::kTile - 1) / RoutesAt::kTile,
             gathered = static_cast<size_t>(
                 RouteMemory::most_gathered(limits.max_rows, limits.experts.experts, limits.experts.used));
  CarvedRoutes c;
  RouteCarver carver{memory};
  c.total = carver.part<uint64_t>(1);
  c.routes.active = Global<int32_t>(carver.part<int32_t>(1));
  c.routes.chosen = Global<int32_t>(carver.part<int32_t>(routes));
  c.routes.weights = Global<float>(carver.part<float>(routes));
  c.routes.positions = Global<int32_t>(carver.part<int32_t>(routes));
  c.routes.counts = Global<int32_t>(carver.part<int32_t>(experts));
  c.routes.offsets = Global<int32_t>(carver.part<int32_t>(experts + 1));
  c.routes.sources = Global<int32_t>(carver.part<int32_t>(gathered));
  c.routes.tiles = Global<int32_t>(carver.part<int32_t>(tiles * experts));
  c.bytes = carver.used;
  return c;
}

template <int kLaneExperts>
void launch_choice(Stream& stream, const RouteArgs& args, const RoutesAt& routes, int rows) {
  using Kernel = ChooseExperts<kLaneExperts>;
  stream.launch({.x = (rows + Kernel::kWarps - 1) / Kernel::kWarps, .threads = Kernel::kThreads},
                Kernel{.routing = args.routing,
                       .correction = Global<const float>(args.correction),
                       .scales = Global<const float>(args.scales),
                       .scores = {Global<float>(args.scores.data), args.scores.stride},
                       .rows = rows,
                       .chosen = routes.chosen,
                       .weights = routes.weights});
}

template <class Kernel>
void launch_grouping(Stream& stream, const RoutesAt& routes, int blocks) {
  stream.launch({.x = blocks, .threads = Kernel::kThreads, .shared_bytes = RouteGrouping::shared_bytes(routes.experts)},
                Kernel{{routes}});
}

}  // namespace

int RouteMemory::most_gathered(int rows, int experts, int used) {
  const int routes = rows * used;
  return routes + std::min(experts, routes) * (RoutesAt::kRunRows - 1);
}

size_t RouteMemory::bytes(const OperationLimits& limits) {
  return limits.experts.experts > 0 ? carve_routes(nullptr, limits).bytes : 0;
}

RouteMemory::RouteMemory(std::byte* memory, const OperationLimits& limits) {
  const OperationLimits::Experts& experts = limits.experts;
  if (experts.experts > kMostExperts || experts.used > kMostUsed)
    throw Error{ErrorKind::kUnsupported, "a layer has " + std::to_string(experts.experts) +
                                             " experts, of which a token uses " + std::to_string(experts.used) +
                                             "; on a GPU at most " + std::to_string(kMostExperts) + " and " +
                                             std::to_string(kMostUsed) + " are supported; run the model on the CPU"};
  const CarvedRoutes carved = carve_routes(memory, limits);
  routes_ = carved.routes;
  total_ = carved.total;
}

void RouteMemory::route(Stream& stream, const RouteArgs& args, int rows) {
  const Routing& r = args.routing;
  assert(args.scores.cols == 2 * r.experts && r.used <= kMostUsed && (r.groups_used >= r.groups || r.groups <= 32));
  routes_.experts = r.experts;
  routes_.used = r.used;
  routes_.routes = rows * r.used;
  if (rows == 0) return;
  if (r.experts <= 32) {
    launch_choice<1>(stream, args, routes_, rows);
  } else if (r.experts <= 64) {
    launch_choice<2>(stream, args, routes_, rows);
  } else if (r.experts <= 128) {
    launch_choice<4>(stream, args, routes_, rows);
  } else if (r.experts <= 256) {
    launch_choice<8>(stream, args, routes_, rows);
  } else if (r.experts <= 512) {
    launch_choice<16>(stream, args, routes_, rows);
  } else {
    launch_choice<kMostLaneExperts>(stream, args, routes_, rows);
  }
  const int tiles = (routes_.routes + RoutesAt::kTile - 1) / RoutesAt::kTile;
  if (tiles == 1) return launch_grouping<GroupRoutes>(stream, routes_, 1);
  launch_grouping<CountRoutes>(stream, routes_, tiles);
  launch_grouping<FindRouteOffsets>(stream, routes_, 1);
  launch_grouping<PlaceRoutes>(stream, routes_, tiles);
}

void RouteMemory::add_bytes(Stream& stream, uint64_t bytes_of_expert) const {
  stream.launch({.threads = AddExpertBytes::kThreads},
                AddExpertBytes{Global<const int32_t>(routes_.active), bytes_of_expert, total()});
}

ExpertBytes::ExpertBytes(Device& device, const RouteMemory& routes)
    : device_(device),
      total_(reinterpret_cast<const std::byte*>(routes.total_place())),
      places_(reinterpret_cast<uint64_t*>(device.allocate_host(kPlaces * sizeof(uint64_t)))) {}

ExpertBytes::~ExpertBytes() { device_.free_host(reinterpret_cast<std::byte*>(places_)); }

void ExpertBytes::download(Stream& stream) {
  stream.download(reinterpret_cast<std::byte*>(places_ + passes_++ % kPlaces), total_, sizeof(uint64_t));
}

void ExpertBytes::finished_first() {
  if (finished_ < passes_) known_ = places_[finished_++ % kPlaces];
}

void ExpertBytes::finished() {
  assert(passes_ > finished_);
  finished_ = passes_ - 1;
  finished_first();
}

uint64_t ExpertBytes::take() { return known_ - std::exchange(taken_, known_); }

}  // namespace quire::cuda
