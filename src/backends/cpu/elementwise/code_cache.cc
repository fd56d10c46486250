#include "backends/cpu/elementwise/code_cache.h"

#include <algorithm>

#include "backends/cpu/elementwise/interpreter.h"
#include "backends/cpu/elementwise/jit.h"

namespace lockstep::cpu {

using elementwise::ScalarProgram;

CodeCache& CodeCache::global() {
  // Never destroyed: threads may still prepare kernels while the process ends.
  static CodeCache* const cache = new CodeCache(4096);
  return *cache;
}

// The caller holds the mutex.
std::shared_ptr<const BlockCode> CodeCache::lookup(uint64_t hash, const ScalarProgram& program,
                                                   std::span<const Access> accesses, CodeKind kind,
                                                   bool streaming) {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Entry& entry = *it->second;
    if (entry.kind != kind || entry.streaming != streaming || !std::ranges::equal(entry.accesses, accesses) ||
        entry.program != program)
      continue;
    entries_.splice(entries_.begin(), entries_, it->second);
    return entry.code;
  }
  return nullptr;
}

std::shared_ptr<const BlockCode> CodeCache::find(const ScalarProgram& program,
                                                 std::span<const Access> accesses, CodeKind kind,
                                                 bool streaming) {
  if (kind == CodeKind::interpreter) {  // it follows any stride and never streams
    accesses = {};
    streaming = false;
  }
  uint64_t hash = elementwise::hash(program) + static_cast<uint64_t>(kind) * 2 + (streaming ? 1 : 0);
  for (const Access access : accesses) hash = (hash ^ static_cast<uint64_t>(access)) * 0x9e3779b97f4a7c15;
  {
    const std::lock_guard lock(mutex_);
    if (auto code = lookup(hash, program, accesses, kind, streaming)) return code;
  }

  // Compiled without the lock: two threads may do the same work once, but none waits for another.
  validate(program);
  std::shared_ptr<const BlockCode> code;
  if (kind != CodeKind::interpreter) {
    const jit::Isa isa = kind == CodeKind::avx512 ? jit::Isa::avx512 : jit::Isa::avx2;
    code = jit::compile(program, accesses, isa, streaming);
  }
  if (!code) code = interpret(program);

  const std::lock_guard lock(mutex_);
  if (auto known = lookup(hash, program, accesses, kind, streaming)) return known;
  entries_.push_front({hash, program, {accesses.begin(), accesses.end()}, kind, streaming, code});
  by_hash_.emplace(hash, entries_.begin());
  if (entries_.size() > capacity_) {
    const auto oldest = std::prev(entries_.end());
    const auto [first, last] = by_hash_.equal_range(oldest->hash);
    by_hash_.erase(std::find_if(first, last, [&](const auto& pair) { return pair.second == oldest; }));
    entries_.erase(oldest);
  }
  return code;
}

size_t CodeCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace lockstep::cpu
