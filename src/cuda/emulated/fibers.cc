#include "cuda/emulated/fibers.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cassert>
#include <cstddef>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUIRE_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define QUIRE_ADDRESS_SANITIZER
#endif
#if defined(QUIRE_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace quire::cuda::emulated {
namespace {

// Kernels keep a few KiB on it; sanitized frames are larger. Pages that are not touched cost nothing; one after the end faults.
constexpr size_t kFiberStack = size_t{256} << 10;
// A page has 64 lines, and a thread that waits keeps about 10 in use: 13 lines apart, 64 stacks begin at 64 different lines.
constexpr size_t kStackOffsets = 64, kStackShift = size_t{13} * 64;

// The stack belongs to the Fiber, not to what runs on it.
struct BorrowedStack {
  void deallocate(boost::context::stack_context&) {}
};

}  // namespace

// A stack and where it stopped.
struct FiberPool::Context {
  // AddressSanitizer must know which stack is in use: to be called before and after each switch.
  struct StackSwitch {
    const void* bottom = nullptr;  // of the stack that this side runs on
    size_t size = 0;
    void* fake = nullptr;

    void leave([[maybe_unused]] const StackSwitch& to, [[maybe_unused]] bool forever) {
#if defined(QUIRE_ADDRESS_SANITIZER)
      __sanitizer_start_switch_fiber(forever ? nullptr : &fake, to.bottom, to.size);
#endif
    }
    // from: learns where the other side's stack is.
    void arrive([[maybe_unused]] StackSwitch& from) {
#if defined(QUIRE_ADDRESS_SANITIZER)
      __sanitizer_finish_switch_fiber(fake, &from.bottom, &from.size);
#endif
    }
  };

  boost::context::fiber saved;  // while another runs
  StackSwitch stack;
};

struct FiberPool::Fiber : Context {
  class OwnedStack {
   public:
    OwnedStack() : stack_(boost::context::protected_fixedsize_stack(kFiberStack).allocate()) {}
    ~OwnedStack() {
#if defined(QUIRE_ADDRESS_SANITIZER)
      // What ran here may have ended in the middle of its frames, as a fiber's first function does. The addresses may become other memory.
      __asan_unpoison_memory_region(static_cast<std::byte*>(stack_.sp) - stack_.size, stack_.size);
#endif
      boost::context::protected_fixedsize_stack(kFiberStack).deallocate(stack_);
    }
    OwnedStack(const OwnedStack&) = delete;
    OwnedStack& operator=(const OwnedStack&) = delete;
    const boost::context::stack_context& context() const { return stack_; }

   private:
    boost::context::stack_context stack_;
  };

  OwnedStack memory;
  bool ending = false;
};

FiberPool::FiberPool(std::function<void(int)> body) : body_(std::move(body)), host_(std::make_unique<Context>()) {}

FiberPool::~FiberPool() {
  for (size_t i = 0; i < fibers_.size(); ++i) {
    fibers_[i]->ending = true;
    resume(static_cast<int>(i));
    assert(!fibers_[i]->saved);
  }
}

void FiberPool::reserve(int count) {
  while (fibers_.size() < static_cast<size_t>(count)) {
    const int i = static_cast<int>(fibers_.size());
    Fiber& made = *fibers_.emplace_back(std::make_unique<Fiber>());
    boost::context::stack_context stack = made.memory.context();
    // Stacks begin at different offsets of a page; else their tops would share a few sets of the cache.
    const size_t shift = static_cast<size_t>(i) % kStackOffsets * kStackShift;
    stack.sp = static_cast<std::byte*>(stack.sp) - shift;
    stack.size -= shift;
    made.stack.bottom = static_cast<std::byte*>(stack.sp) - stack.size;
    made.stack.size = stack.size;
    const auto run = [this, i, &made](boost::context::fiber&& caller) {
      last_->saved = std::move(caller);
      made.stack.arrive(last_->stack);
      while (!made.ending) {
        body_(i);
        suspend(i, kNone);
      }
      last_ = &made;
      made.stack.leave(host_->stack, true);
      return std::move(host_->saved);
    };
    made.saved = boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                                       BorrowedStack(), run);
  }
}

// Returns when something switches back to `from`: what did so, last_, is then where it stopped.
void FiberPool::switch_to(Context& from, Context& to) {
  from.stack.leave(to.stack, false);
  last_ = &from;
  boost::context::fiber other = std::move(to.saved).resume();
  last_->saved = std::move(other);
  from.stack.arrive(last_->stack);
}

void FiberPool::resume(int i) { switch_to(*host_, fiber(i)); }

void FiberPool::suspend(int i, int next) { switch_to(fiber(i), next == kNone ? *host_ : fiber(next)); }

}  // namespace quire::cuda::emulated
