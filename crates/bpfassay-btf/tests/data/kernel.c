// SPDX-License-Identifier: MIT OR Apache-2.0
// What a kernel's BTF says of some functions, with the prototypes of Linux 6.12 (fs/read_write.c), and 7.0 (`vfs_mkdir`, fs/namei.c).
// clang-19 -target bpf -g -O2 -c kernel.c -o kernel.o && llvm-objcopy-19 --dump-section .BTF=kernel.btf kernel.o
typedef unsigned long size_t;
typedef long ssize_t;
typedef long long loff_t;
typedef int rwf_t;
struct file { int x; };
struct iovec { int x; };
struct pair { long a, b; };
ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos) { return 0; }
ssize_t vfs_readv(struct file *file, const struct iovec *vec, unsigned long vlen, loff_t *pos, rwf_t flags) { return 0; }
void put(struct file *file) {}
long by_value(struct pair *pair, size_t count) { return 0; }
struct mnt_idmap { int x; };
struct inode { int x; };
struct dentry { int x; };
struct dentry *vfs_mkdir(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, unsigned short mode) { return 0; }
