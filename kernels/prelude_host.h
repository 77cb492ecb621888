// The portable dialect on the host, for tests: every thread of a block is a fiber; the 32 lanes
// of a simdgroup run in lock step from one collective to the next, blocks run one by one.
//
// The lines that begin with "//! entry" open every body.
//! entry const unsigned thread_idx = host::thread();
//! entry const unsigned block_idx = host::block();
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

typedef unsigned char byte_t;
typedef unsigned short half_bits;
typedef long long wide;
struct bf16 { uint16_t bits; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };

#define GLOBAL
#define SHARED_PTR
#define PRIVATE
#define CONSTANT_TABLE static const
// A constant that stays in a register: (v & mask) | it is then one instruction.
#define IN_REGISTER(name, value) static const unsigned name = value
#define INLINE static inline
#define SHARED(type, name, count) alignas(16) static type name[count]
#define UNROLL
#define ROLLED
#define UNROLL_BY_2
#define UNROLL_BY_4

namespace host {
constexpr int kLanes = 32;
constexpr size_t kStackBytes = 64 * 1024;
enum Stop { kSimd, kBlock, kDone };

struct Fiber {
  ucontext_t first;
  jmp_buf at;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  bool has_begun = false;
  Stop stop = kDone;
  const void* where = nullptr;  // the kind of collective it stands at
};
struct Slot { uint64_t words[2][kLanes][8]; unsigned turn[kLanes]; };

struct Machine {
  std::vector<Fiber> fibers;
  std::vector<Slot> slots;
  ucontext_t home_first;
  jmp_buf home;
  unsigned thread = 0, block = 0;
  void (*body)() = nullptr;
  char error[200] = "";
};
inline Machine& machine() { static Machine m; return m; }
inline unsigned thread() { return machine().thread; }
inline unsigned block() { return machine().block; }

inline void stop(Stop kind, const void* where) {
  Machine& m = machine();
  Fiber& f = m.fibers[m.thread];
  f.stop = kind;
  f.where = where;
  if (kind == kDone || !_setjmp(f.at)) _longjmp(m.home, 1);
}
inline void begin() { machine().body(); stop(kDone, nullptr); }

// Run one thread up to its next collective.
inline void resume(unsigned thread) {
  Machine& m = machine();
  m.thread = thread;
  if (_setjmp(m.home)) return;
  Fiber& f = m.fibers[thread];
  if (f.has_begun) _longjmp(f.at, 1);
  f.has_begun = true;
  getcontext(&f.first);
  f.first.uc_stack.ss_sp = f.stack.get();
  f.first.uc_stack.ss_size = kStackBytes;
  f.first.uc_link = nullptr;
  makecontext(&f.first, begin, 0);
  setcontext(&f.first);
}

inline bool fail(const char* what, unsigned simdgroup) {
  Machine& m = machine();
  snprintf(m.error, sizeof m.error, "block %u, simdgroup %u: %s", m.block, simdgroup, what);
  return false;
}
// One lock step of a simdgroup; false when its lanes stopped at different collectives.
inline bool step(unsigned simdgroup) {
  Machine& m = machine();
  const unsigned first = simdgroup * kLanes;
  for (unsigned i = 0; i < kLanes; i++) resume(first + i);
  for (unsigned i = 1; i < kLanes; i++) {
    const Fiber &a = m.fibers[first], &b = m.fibers[first + i];
    if (a.stop != b.stop || a.where != b.where) return fail("lanes part ways", simdgroup);
  }
  return true;
}
inline bool run_block(unsigned block, unsigned n_threads) {
  Machine& m = machine();
  const unsigned n = n_threads / kLanes;
  m.block = block;
  for (Fiber& f : m.fibers) { f.has_begun = false; f.stop = kSimd; }
  for (Slot& s : m.slots) memset(s.turn, 0, sizeof s.turn);
  for (;;) {
    unsigned n_done = 0;
    for (unsigned g = 0; g < n; g++) {
      Stop& stop = m.fibers[g * kLanes].stop;
      while (stop == kSimd) if (!step(g)) return false;
      n_done += stop == kDone;
    }
    if (n_done == n) return true;
    if (n_done) return fail("some threads ended before a barrier", 0);
    for (unsigned g = 0; g < n; g++) m.fibers[g * kLanes].stop = kSimd;
  }
}
// Returns an empty string, or what went wrong.
inline const char* run(void (*body)(), unsigned n_threads, unsigned n_blocks) {
  Machine& m = machine();
  m.body = body;
  m.error[0] = 0;
  if (m.fibers.size() != n_threads) m.fibers = std::vector<Fiber>(n_threads);
  m.slots.resize(n_threads / kLanes);
  for (unsigned b = 0; b < n_blocks; b++) if (!run_block(b, n_threads)) break;
  return m.error;
}
// Show `words` to the simdgroup and return everyone's. Two buffers take turns, so one stop is
// enough: nobody can be two collectives ahead.
inline uint64_t (*share(const uint64_t* words, int n, const void* where))[8] {
  Machine& m = machine();
  Slot& slot = m.slots[m.thread / kLanes];
  const unsigned lane = m.thread % kLanes, turn = slot.turn[lane]++ & 1;
  for (int i = 0; i < n; i++) slot.words[turn][lane][i] = words[i];
  stop(kSimd, where);
  return machine().slots[machine().thread / kLanes].words[turn];
}
}  // namespace host

// Bits and floats.
INLINE unsigned as_bits(float v) { unsigned b; memcpy(&b, &v, 4); return b; }
INLINE float as_float(unsigned v) { float f; memcpy(&f, &v, 4); return f; }
INLINE float fused(float a, float b, float c) { return std::fma(a, b, c); }
INLINE float times(float a, float b) { return a * b; }
INLINE float plus(float a, float b) { return a + b; }
INLINE float over(float a, float b) { return a / b; }
INLINE float inverse(float v) { return 1.0f / v; }
// Within two units in the last place.
INLINE float near_inverse(float v) { return 1.0f / v; }
INLINE float root(float v) { return std::sqrt(v); }
INLINE float power_of_e(float v) { return std::exp(v); }
INLINE float natural_log(float v) { return std::log(v); }
INLINE float half_value(unsigned bits) {
  const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return as_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest < 0x400u) return std::ldexp(static_cast<float>(rest), -24) * (sign ? -1.0f : 1.0f);
  return as_float(sign | ((rest << 13) + (112u << 23)));
}
INLINE unsigned rounded_bf16(float v) {
  const unsigned bits = as_bits(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
INLINE unsigned bf16_pair(float low, float high) {
  return rounded_bf16(low) | rounded_bf16(high) << 16;
}

// Four bytes of the eight in (high:low) by the low four nibbles of `pick`, none above 7.
INLINE unsigned pick_bytes(unsigned low, unsigned high, unsigned pick) {
  const uint64_t both = (static_cast<uint64_t>(high) << 32) | low;
  unsigned out = 0;
  for (int i = 0; i < 4; i++)
    out |= static_cast<unsigned>(both >> (8 * ((pick >> (4 * i)) & 7)) & 255) << (8 * i);
  return out;
}
// The low 32 bits of (high:low) >> n; n < 32.
INLINE unsigned shift_pair(unsigned low, unsigned high, unsigned n) {
  return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32) | low) >> n);
}
// a - b of two bf16 pairs; exact for what the kernels subtract.
INLINE unsigned minus_bf16x2(unsigned a, unsigned b) {
  const float low = as_float(a << 16) - as_float(b << 16);
  const float high = as_float(a & 0xffff0000u) - as_float(b & 0xffff0000u);
  return rounded_bf16(low) | rounded_bf16(high) << 16;
}
// Two whole numbers below 256, the halves of `codes`, times 2^-133 times a bf16 pair; exact for
// what the kernels multiply.
INLINE unsigned times_codes(unsigned codes, unsigned pair) {
  const float low = static_cast<float>(codes & 0xffffu) * (as_float(pair << 16) * 0x1p-100f);
  const float high = static_cast<float>(codes >> 16) * (as_float(pair & 0xffff0000u) * 0x1p-100f);
  return rounded_bf16(low * 0x1p-33f) | rounded_bf16(high * 0x1p-33f) << 16;
}

// Memory. Vectors of 16 bytes; `byte_at` must be a multiple of 16.
INLINE uint4 load16(const void* base, wide byte_at) {
  uint4 out;
  memcpy(&out, static_cast<const char*>(base) + byte_at, 16);
  return out;
}
// As load16, but not put off beyond the next `simd_sync` or `barrier`.
INLINE uint4 load16_early(const void* base, wide byte_at) { return load16(base, byte_at); }
INLINE uint2 load8(const void* base, wide byte_at) {
  uint2 out;
  memcpy(&out, static_cast<const char*>(base) + byte_at, 8);
  return out;
}
INLINE void store16(void* base, wide byte_at, const unsigned* v) {
  memcpy(static_cast<char*>(base) + byte_at, v, 16);
}
// Copy `n_valid` of 16 bytes (0..16) to shared memory, the rest becomes zero. It has arrived
// after `copies_wait` and a `simd_sync` or `barrier`.
INLINE void copy16(uint4* to, const void* base, wide byte_at, int n_valid) {
  memset(to, 0, 16);
  if (n_valid) memcpy(to, static_cast<const char*>(base) + byte_at, n_valid);
}
INLINE void copies_close() {}
// Wait until at most the newest N groups are still on their way.
template <int N>
INLINE void copies_wait() {}

INLINE float value_of(float v) { return v; }
INLINE float value_of(bf16 v) { return as_float(static_cast<unsigned>(v.bits) << 16); }
INLINE void put(float* to, wide i, float v) { to[i] = v; }
INLINE void put(bf16* to, wide i, float v) { to[i].bits = static_cast<uint16_t>(rounded_bf16(v)); }

// Collectives: all 32 lanes of a simdgroup (all threads of a block for `barrier`) take part.
INLINE void simd_sync() { static char here; host::stop(host::kSimd, &here); }
INLINE void barrier() { static char here; host::stop(host::kBlock, &here); }
INLINE float from_lane(float v, unsigned lane) {
  static char here;
  const uint64_t word = as_bits(v);
  return as_float(static_cast<unsigned>(host::share(&word, 1, &here)[lane & 31][0]));
}
INLINE float from_lane_xor(float v, unsigned mask) {
  return from_lane(v, (host::thread() & 31) ^ mask);
}

// c (16 x 8) += a (16 x 16) b (16 x 8), bf16 pairs in, float out. With g = lane / 4 and
// t = lane % 4: a0 = A[g][2t, 2t+1], a1 = A[g+8][same], a2 = A[g][2t+8, 2t+9], a3 =
// A[g+8][same]; b0 = B[2t, 2t+1][g], b1 = B[2t+8, 2t+9][g]; c0, c1 = C[g][2t, 2t+1],
// c2, c3 = C[g+8][same]. A column of C depends on its own column of B alone.
INLINE void multiply_tiles(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                           unsigned b0, unsigned b1) {
  static char here;
  const uint64_t mine[6] = {a0, a1, a2, a3, b0, b1};
  uint64_t (*all)[8] = host::share(mine, 6, &here);
  const unsigned lane = host::thread() & 31, g = lane / 4, t = lane % 4;
  for (unsigned i = 0; i < 4; i++) {
    const unsigned row = g, column = 2 * t + (i & 1), upper = i / 2;
    for (unsigned half = 0; half < 2; half++)
      for (unsigned p = 0; p < 4; p++) {
        const unsigned a = static_cast<unsigned>(all[4 * row + p][upper + 2 * half]);
        const unsigned b = static_cast<unsigned>(all[4 * column + p][4 + half]);
        c[i] = std::fma(as_float(a << 16), as_float(b << 16), c[i]);
        c[i] = std::fma(as_float(a & 0xffff0000u), as_float(b & 0xffff0000u), c[i]);
      }
  }
}
