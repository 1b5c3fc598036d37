// Blocks runtime for clang -fobjc-runtime=gcc on Linux (layout: clang's Block-ABI-Apple document).
// Threads: any; reference counts are atomic. Ownership: the usual block rules, captured objects are retained.
// Needed because libgnustep-base exports an obsolete runtime that never copies clang's blocks to the heap, and the
// distribution's libBlocksRuntime neither retains captured objects nor has classes that can receive messages.
#import <Foundation/Foundation.h>

#include <Block.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Bits of a block's (and of a __block variable's) flags word. The count sits in bits 1 to 15, in steps of two.
enum {
  kCountMask = 0xfffe,
  kCountStep = 2,
  kIsHeap = 1 << 24,
  kHasCopyDispose = 1 << 25,
  kIsGlobal = 1 << 28,
};
// What a capture is, as the compiler tells _Block_object_assign.
enum {
  kFieldObject = 3,
  kFieldBlock = 7,
  kFieldByref = 8,
  kFieldWeak = 16,
  kFieldByrefCaller = 128,
};

struct block_descriptor {
  unsigned long reserved;
  unsigned long byte_count;
  void (*copy)(void* to, const void* from);
  void (*dispose)(const void* block);
};

struct block_literal {
  void* isa;
  _Atomic(int32_t) flags;
  int32_t reserved;
  void (*invoke)(void* block, ...);
  struct block_descriptor* descriptor;
};

struct block_byref {
  void* isa;
  struct block_byref* forwarding;
  _Atomic(int32_t) flags;
  uint32_t byte_count;
  void (*keep)(struct block_byref* to, struct block_byref* from);
  void (*destroy)(struct block_byref* variable);
};

// Real, registered classes, so that blocks can be copied by message and kept in collections. The symbols that the
// compiler stores as a block's class are aliases of the class structures (their symbol size is informative only).
@interface NSBlock : NSObject
@end
@interface __NSStackBlock__ : NSBlock
@end
@interface __NSMallocBlock__ : NSBlock
@end
@interface __NSGlobalBlock__ : NSBlock
@end
#define ALIAS_CLASS(symbol, class)                                                                                  \
  __asm__(".globl " #symbol "\n.type " #symbol ",@object\n.set " #symbol ", _OBJC_CLASS_" #class "\n.size " #symbol \
                                                                                                 ",104")
ALIAS_CLASS(_NSConcreteStackBlock, __NSStackBlock__);
ALIAS_CLASS(_NSConcreteMallocBlock, __NSMallocBlock__);
ALIAS_CLASS(_NSConcreteGlobalBlock, __NSGlobalBlock__);
extern void* _NSConcreteMallocBlock[];

void* _Block_copy(const void* block) {
  struct block_literal* source = (struct block_literal*)block;
  if (source == NULL) {
    return NULL;
  }
  const int32_t flags = atomic_load(&source->flags);
  if (flags & kIsGlobal) {
    return source;
  }
  if (flags & kIsHeap) {
    atomic_fetch_add(&source->flags, kCountStep);
    return source;
  }
  struct block_literal* copy = malloc(source->descriptor->byte_count);
  if (copy == NULL) {
    return NULL;
  }
  memcpy(copy, source, source->descriptor->byte_count);
  atomic_store(&copy->flags, (flags & ~kCountMask) | kIsHeap | kCountStep);
  copy->isa = (void*)_NSConcreteMallocBlock;
  if (flags & kHasCopyDispose) {
    source->descriptor->copy(copy, source);
  }
  return copy;
}

void _Block_release(const void* block) {
  struct block_literal* literal = (struct block_literal*)block;
  if (literal == NULL) {
    return;
  }
  const int32_t flags = atomic_load(&literal->flags);
  if ((flags & kIsGlobal) || !(flags & kIsHeap)) {
    return;
  }
  if ((atomic_fetch_sub(&literal->flags, kCountStep) & kCountMask) != kCountStep) {
    return;
  }
  if (flags & kHasCopyDispose) {
    literal->descriptor->dispose(literal);
  }
  free(literal);
}

static void copy_byref(struct block_byref** destination, struct block_byref* source) {
  struct block_byref* heap = source->forwarding;
  if (atomic_load(&heap->flags) & kIsHeap) {
    atomic_fetch_add(&heap->flags, kCountStep);
  } else {
    heap = malloc(source->byte_count);
    memcpy(heap, source, source->byte_count);
    // One reference for the stack frame, which disposes of the variable when it ends, and one for the block.
    atomic_store(&heap->flags, (atomic_load(&source->flags) & ~kCountMask) | kIsHeap | (2 * kCountStep));
    heap->forwarding = heap;
    source->forwarding = heap;
    if (atomic_load(&source->flags) & kHasCopyDispose) {
      source->keep(heap, source);
    }
  }
  *destination = heap;
}

static void release_byref(struct block_byref* variable) {
  variable = variable->forwarding;
  const int32_t flags = atomic_load(&variable->flags);
  if (!(flags & kIsHeap) || (atomic_fetch_sub(&variable->flags, kCountStep) & kCountMask) != kCountStep) {
    return;
  }
  if (flags & kHasCopyDispose) {
    variable->destroy(variable);
  }
  free(variable);
}

// Called by compiler-generated copy and dispose helpers. A __block object is not retained (manual reference counting).
void _Block_object_assign(void* destination, const void* object, const int kind) {
  if (kind & (kFieldByrefCaller | kFieldWeak)) {
    *(const void**)destination = object;
  } else if (kind & kFieldByref) {
    copy_byref((struct block_byref**)destination, (struct block_byref*)object);
  } else if ((kind & kFieldBlock) == kFieldBlock) {
    *(void**)destination = _Block_copy(object);
  } else {
    *(id*)destination = [(id)object retain];
  }
}

void _Block_object_dispose(const void* object, const int kind) {
  if (kind & (kFieldByrefCaller | kFieldWeak)) {
    return;
  }
  if (kind & kFieldByref) {
    release_byref((struct block_byref*)object);
  } else if ((kind & kFieldBlock) == kFieldBlock) {
    _Block_release(object);
  } else {
    [(id)object release];
  }
}

@implementation NSBlock
- (id)copy {
  return (id)_Block_copy(self);
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return (id)_Block_copy(self);
}
- (id)retain {
  return (id)_Block_copy(self);
}
- (oneway void)release {
  _Block_release(self);
}
- (NSUInteger)retainCount {
  const int32_t flags = atomic_load(&((struct block_literal*)self)->flags);
  return (flags & kIsHeap) ? (NSUInteger)((flags & kCountMask) / kCountStep) : 1;
}
- (void)dealloc {
  // Memory of a block belongs to _Block_release; [super dealloc] would free it a second time.
  if (NO) {
    [super dealloc];
  }
}
@end

// Messages must not move or count a block that still lives on the stack.
@implementation __NSStackBlock__
- (id)retain {
  return self;
}
- (oneway void)release {
}
@end
@implementation __NSMallocBlock__
@end
@implementation __NSGlobalBlock__
@end
